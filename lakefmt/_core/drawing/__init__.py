"""Pictures of tables as SVG: values in, text out.

``pictures`` has the picture itself, colours and axes of time, ``timeline`` draws instants, ``layout`` draws partitions by their
size, ``costs`` what commits wrote. No script is needed to see them, texts are data, and each part has a name to be read aloud.
"""
