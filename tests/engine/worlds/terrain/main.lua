-- Terrain: blocks of voxels, what is read back, what is written.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local terrain = Workspace.Terrain
Check.equal("Terrain", terrain.ClassName, "Terrain")
terrain:FillBlock(CFrame.new(0, 0, 0), Vector3.new(16, 8, 16), Enum.Material.Grass)
local region = Region3.new(Vector3.new(-8, -4, -8), Vector3.new(8, 4, 8))
local channels = terrain:ReadVoxelChannels(region, 4, { "SolidMaterial", "SolidOccupancy" })
Check.equal("4 by 2 by 4 voxels", #channels.SolidMaterial, 4)
Check.equal("in y", #channels.SolidMaterial[1], 2)
Check.equal("in z", #channels.SolidMaterial[1][1], 4)
Check.equal("material", channels.SolidMaterial[1][1][1], Enum.Material.Grass)
Check.near("occupancy", channels.SolidOccupancy[1][1][1], 1, 1e-6)
channels.SolidOccupancy[1][1][1] = 0
terrain:WriteVoxelChannels(region, 4, channels)
local again = terrain:ReadVoxelChannels(region, 4, { "SolidOccupancy" })
Check.near("written", again.SolidOccupancy[1][1][1], 0, 1e-6)
Check.near("the rest is as before", again.SolidOccupancy[2][1][1], 1, 1e-6)
Check.done()
