"""The special tokens, whose ids every vocabulary, model and measure shares."""

PAD, BOS, EOS, UNK = 0, 1, 2, 3
N_SPECIALS = 4
