"""Tools that check derivatives; public, because users write rules and losses of their own."""
