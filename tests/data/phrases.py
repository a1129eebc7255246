"""A few sentences in two languages to learn a vocabulary from."""

from __future__ import annotations

from transformer_ablate.data.text_vocabulary import TextVocabulary
from transformer_ablate.data.tokenizer import build_vocabularies

ENGLISH = [
    "Cannot open the file %s: %s",
    "Cannot close the file %s",
    "Open the folder {name}",
    "Open  two   folders,then close them…",
    "The file “{name}” is not a folder",
    "Close the folder and open the file",
    "%d files, %(count)d folders",
    "the file, the folder and the file",
] * 3
CHINESE = [
    "无法打开文件 %s：%s",
    "无法关闭文件 %s",
    "打开文件夹 {name}",
    "打开两个文件夹，然后关闭",
    "文件“{name}”不是文件夹",
    "关闭文件夹并打开文件",
    "%d 个文件，%(count)d 个文件夹",
    "文件、文件夹和文件",
] * 3
SIZE = 300


def built(kind: str, joint: bool = True, size: int = SIZE) -> tuple[TextVocabulary, TextVocabulary]:
    return build_vocabularies(kind, ENGLISH, CHINESE, size=size, joint=joint)
