"""The value types of scripts, and the engine's operations on them.

- ``rotations``: rotations as plain tuples of nine numbers
- ``vector3``: the ``Vector3`` library and the members of vectors
- ``vector2``: points and rectangles on the screen
- ``value``: the base of the types: functions that check their arguments, rounding
- ``cframe``: positions with a rotation
- ``color3``: colours
- ``brick_color``: colours from a fixed list
- ``ray_and_region``, ``physical_properties``: their namesakes
- ``udim``: ``UDim`` and ``UDim2``, the sizes and positions of the GUI
- ``font``: ``Font``, a family of fonts with a weight and a style
- ``sequences``: numbers and colours over time, and ranges
- ``enums``: ``Enum``, its enums and their items
- ``public_enums.txt``: generated data: the enums of the public API that ``enums`` does not list
- ``query_params``: ``RaycastParams``, ``OverlapParams`` and ``RaycastResult``
- ``tween_info``: the parameters of tweens, and easing curves
- ``date_time``: moments of simulation time
- ``random_stream``: ``Random``
- ``libraries``: all types as the globals of a VM, registered with its host

Components are 32-bit floats; arithmetic is done in doubles and its result is rounded once.
"""
