"""The terminal inside the output tab: a parser, a screen with history, and the keys it understands."""
