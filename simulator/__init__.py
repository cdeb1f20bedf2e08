"""What runs next to the database: one collector and N workers. Never imports `cli`."""

__version__ = "0.2.0"
