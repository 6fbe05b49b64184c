"""`qd.outer`: a product that tiles subtract."""

from quadrants.lang._unavailable import unavailable_function

outer = unavailable_function(__name__, "outer", "qd.outer")
