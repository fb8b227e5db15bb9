"""Looking into what is packed or compressed, in bounded memory.

- ``decoder``: what a decoder reads from and reports to.
- ``detect``: which container a content is.
- ``beginnings``: where something compressed begins.
- ``parts``: the compressed parts of a content.
- ``streams``: compressed streams.
- ``zips``: zip archives.
- ``tars``: tar archives.
- ``pngs``: PNG pictures.
- ``git_objects``: Git's loose objects.
- ``git_packs``: Git pack files.
"""
