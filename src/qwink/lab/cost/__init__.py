"""Operations and bytes of a request, its least time on this machine, and prices of images."""
