"""From the declaration of a study to finished runs: plan, launch, work, record."""
