"""How drafters' weights come about. Nothing here runs when an image is decoded, so changing it leaves images valid."""
