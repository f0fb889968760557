"""What all experiments share: traces, rows of results, pages with tables, and figures."""
