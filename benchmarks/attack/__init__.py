"""An attack on gistgnn: thousands of bad inputs, of which none may end in a traceback."""
