"""The command line as its users run it: a process, watched from outside."""
