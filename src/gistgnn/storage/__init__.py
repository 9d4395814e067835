"""Files that are written completely or not at all; safetensors files and models, read in parts."""
