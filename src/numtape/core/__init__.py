"""The engine: ops leave records, sweeps walk them. Read context, value, record, op, apply, write, reverse in order."""
