"""Many training runs that take turns on one machine, and the table that compares them."""
