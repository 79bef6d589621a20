"""Zero configuration: a recipe is chosen from the data, and the choices are printed. One file per type of data."""
