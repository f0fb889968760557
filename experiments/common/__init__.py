"""Modules of all experiments: traces, rows of results, pages with tables, and figures."""
