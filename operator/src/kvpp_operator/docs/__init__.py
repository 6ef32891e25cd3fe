"""The pages of docs/ that the code writes: what they say is true because they are made from what runs."""
