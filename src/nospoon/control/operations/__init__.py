"""Long work that is carried out, journalled and followed."""
