"""Many training runs on one machine, and the table that compares them."""
