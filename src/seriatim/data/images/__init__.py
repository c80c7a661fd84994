"""Images as data: the kind of their cells, decoding, the store of decoded images, and augmentation.

    IMAGE          the kind: paths, encoded bytes or uint8 arrays (H,W) or (H,W,C)        kind.py
    ImageSettings  how images are read and augmented                                      settings.py
    read_image     one file as an array of one layout                                     decode.py
    load_images    many files, decoded once and mapped from the cache                     store.py
    Images         rows of one size: batches, random crops and flips                      batches.py

Pillow is imported by decode.py only, which the others import when the first image is read.
"""

from .kind import IMAGE, PixelSequence, is_image_name
from .settings import ImageLayout, ImageSettings

__all__ = ["IMAGE", "ImageLayout", "ImageSettings", "PixelSequence", "is_image_name"]
