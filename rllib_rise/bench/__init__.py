"""What it costs, measured side by side: the parts of `rise bench`."""
