"""Operations of the kernel language. Private."""
