"""Tables: named columns, what is wrong in them, and what is done with them."""
