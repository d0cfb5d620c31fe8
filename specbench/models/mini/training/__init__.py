"""How mini's weights came about. Nothing here runs when mini decodes, so changing it leaves stored images valid."""
