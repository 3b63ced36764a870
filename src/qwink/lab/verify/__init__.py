"""`qwink verify`: recipes compared with `exact`, on the user's pictures or on synthetic input."""
