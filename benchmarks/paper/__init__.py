"""The experiments of the paper [HD19], and what lies beyond them."""
