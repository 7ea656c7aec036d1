"""The models and loops of published runs, each written from its description; every program prints a line of JSON."""
