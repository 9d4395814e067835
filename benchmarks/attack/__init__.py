"""An attack on gistgnn: thousands of bad inputs, options and damaged files, of which none may end
in a traceback.
"""
