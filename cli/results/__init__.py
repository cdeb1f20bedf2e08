"""All judgement on stored results; `cli.show` prints what this says."""
