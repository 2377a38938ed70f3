"""The requests and responses, one module per API family; each class is the table of a message's fields."""
