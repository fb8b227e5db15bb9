-- The course as data: everything that `main.lua` builds and moves.
-- It runs along +X. Positions are the middle of the top of a platform.

local Course = {}

Course.checkpoints = {
	{ name = "Start", position = Vector3.new(0, 10, 0), size = Vector3.new(14, 1, 14) },
	{ name = "Bridge", position = Vector3.new(52, 10, 0), size = Vector3.new(10, 1, 10) },
	{ name = "Tower", position = Vector3.new(104, 16, 0), size = Vector3.new(10, 1, 10) },
	{ name = "Windmill", position = Vector3.new(152, 16, 0), size = Vector3.new(10, 1, 10) },
	{ name = "Finish", position = Vector3.new(200, 16, 0), size = Vector3.new(14, 1, 14) },
}

Course.platforms = {
	-- three stepping stones
	{ position = Vector3.new(13, 10, 0), size = Vector3.new(5, 1, 5) },
	{ position = Vector3.new(22, 10, 3), size = Vector3.new(5, 1, 5) },
	{ position = Vector3.new(31, 10, -3), size = Vector3.new(5, 1, 5) },
	-- a ferry to the bridge: it swings along X
	{ position = Vector3.new(40, 10, 0), size = Vector3.new(6, 1, 6), swing = Vector3.new(3, 0, 0), period = 4 },
	-- stairs that rise and sink
	{ position = Vector3.new(64, 11, 0), size = Vector3.new(6, 1, 6), swing = Vector3.new(0, 1.5, 0), period = 4 },
	{ position = Vector3.new(73, 12.5, 0), size = Vector3.new(6, 1, 6), swing = Vector3.new(0, 1.5, 0), period = 4, phase = 0.25 },
	{ position = Vector3.new(82, 14, 0), size = Vector3.new(6, 1, 6), swing = Vector3.new(0, 1.5, 0), period = 4, phase = 0.5 },
	{ position = Vector3.new(92, 15, 0), size = Vector3.new(8, 1, 8) },
	-- a long path below the arms of the windmill
	{ position = Vector3.new(128, 16, 0), size = Vector3.new(38, 1, 7) },
	-- two ferries that swing across the way, in opposite directions
	{ position = Vector3.new(164, 16, 0), size = Vector3.new(7, 1, 7), swing = Vector3.new(0, 0, 4), period = 5 },
	{ position = Vector3.new(175, 16, 0), size = Vector3.new(7, 1, 7), swing = Vector3.new(0, 0, -4), period = 5 },
	{ position = Vector3.new(186, 16, 0), size = Vector3.new(6, 1, 6) },
}

-- Bars that turn about the Y axis, one stud above the path.
Course.spinners = {
	{ position = Vector3.new(120, 18, 0), length = 9, turnsPerSecond = 0.25 },
	{ position = Vector3.new(136, 18, 0), length = 9, turnsPerSecond = -0.3 },
}

Course.coins = {
	Vector3.new(22, 13, 3),
	Vector3.new(31, 13, -3),
	Vector3.new(73, 17, 0),
	Vector3.new(128, 19, 2.5),
	Vector3.new(164, 19, 0),
	Vector3.new(186, 19, 0),
}

Course.lavaHeight = 0
Course.fallHeight = 4 -- players below it are put back
Course.respawnHeight = 4 -- above the checkpoint
Course.spinnerDamage = 25

return Course
