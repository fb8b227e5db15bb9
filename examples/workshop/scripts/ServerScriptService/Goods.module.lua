-- What can be gathered, crafted and built.

local Goods = {}

-- Where raw material is found; a place is empty for `refill` seconds after `stock` takes.
Goods.sources = {
	{ name = "Tree", gives = "Wood", position = Vector3.new(-30, 4, -20), size = Vector3.new(3, 8, 3), color = Color3.fromRGB(88, 120, 60), material = Enum.Material.Wood, stock = 4, refill = 20 },
	{ name = "OldTree", gives = "Wood", position = Vector3.new(-36, 5, 6), size = Vector3.new(4, 10, 4), color = Color3.fromRGB(70, 105, 55), material = Enum.Material.Wood, stock = 6, refill = 30 },
	{ name = "Rock", gives = "Stone", position = Vector3.new(30, 2, -22), size = Vector3.new(6, 4, 5), color = Color3.fromRGB(130, 130, 135), material = Enum.Material.Slate, stock = 5, refill = 25 },
	{ name = "SandPit", gives = "Sand", position = Vector3.new(32, 0.5, 18), size = Vector3.new(8, 1, 8), color = Color3.fromRGB(225, 205, 140), material = Enum.Material.Sand, stock = 8, refill = 15 },
}

-- What the bench makes of it.
Goods.recipes = {
	Plank = { from = { Wood = 1 }, makes = 4 },
	Brick = { from = { Stone = 2 }, makes = 4 },
	Window = { from = { Sand = 2, Wood = 1 }, makes = 2 },
	Lamp = { from = { Sand = 1, Stone = 1, Wood = 1 }, makes = 1 },
}

-- How a block looks, and what a placed one counts.
Goods.blocks = {
	Plank = { color = Color3.fromRGB(176, 126, 78), material = Enum.Material.Wood, points = 1 },
	Brick = { color = Color3.fromRGB(168, 72, 58), material = Enum.Material.Brick, points = 2 },
	Window = { color = Color3.fromRGB(170, 215, 235), material = Enum.Material.Glass, points = 3, transparency = 0.5 },
	Lamp = { color = Color3.fromRGB(255, 225, 140), material = Enum.Material.Neon, points = 5 },
}

Goods.kinds = { "Wood", "Stone", "Sand", "Plank", "Brick", "Window", "Lamp" }
Goods.blockOrder = { "Plank", "Brick", "Window", "Lamp" }

Goods.bench = Vector3.new(0, 1.5, -14)
Goods.reach = 12 -- studs within which a player can gather, craft, place and remove
Goods.cell = 4 -- edge of a block in studs
Goods.plot = 24 -- half of the edge of the square to build on
Goods.maxHeight = 10 -- blocks
Goods.maxBlocks = 200

return Goods
