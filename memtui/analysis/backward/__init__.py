"""What a backward pass will take, from the graph that it is about to run through."""
