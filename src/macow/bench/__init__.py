"""The measurements behind `macow bench NAME`."""
