"""The value types that scripts use, and what the engine itself does with them.

- ``singles``: rounding several numbers to 32 bits at once
- ``functions``: functions and methods that check their arguments
- ``rotations``: rotations as plain tuples of nine numbers
- ``vector3``: the ``Vector3`` library and the members of vectors
- ``vector2``: points on the screen
- ``value``: what the types have in common
- ``cframe``: positions with a rotation
- ``color3``: colours
- ``brick_color``, ``brick_color_data``: colours of a list
- ``ray``, ``physical_properties``: their namesakes
- ``udim``: ``UDim`` and ``UDim2``, the sizes and positions of the GUI
- ``region3``: boxes
- ``enums``: ``Enum``, its enums and their items
- ``enum_data``: their names and numbers
- ``query_params``: ``RaycastParams``, ``OverlapParams`` and ``RaycastResult``
- ``tween_info``, ``easing``: how tweens run
- ``random_stream``: ``Random``
- ``libraries``: all of it as the globals of a VM, registered with its host

Components are 32-bit floats; arithmetic is done in doubles and its result is rounded once.
"""
