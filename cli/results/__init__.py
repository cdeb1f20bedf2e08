"""All judgement on stored results; `cli.render` prints what this says."""
