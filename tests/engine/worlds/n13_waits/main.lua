-- N13: pages of an ordered store, infos of values, and memory stores, each waited for.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local Stores = game:GetService("DataStoreService")
local Memory = game:GetService("MemoryStoreService")

local ranking = Stores:GetOrderedDataStore("ranking")
local profiles = Stores:GetDataStore("profiles", "live")
local queue = Memory:GetQueue("jobs", 0.5)
local sorted = Memory:GetSortedMap("scores")
local left = 4

local function finish()
	left -= 1
	if left == 0 then
		Check.done()
	end
end

task.spawn(function()
	for number = 1, 8 do
		ranking:SetAsync(number, number * 10)
	end
	local pages, keys = ranking:GetSortedAsync(true, 3), {}
	Check.equal("the pages are the array of the first", #pages, 3)
	while true do
		for _, entry in pages:GetCurrentPage() do
			table.insert(keys, entry.key .. "=" .. entry.value)
		end
		task.wait(0.1)
		if pages.IsFinished then
			break
		end
		pages:AdvanceToNextPageAsync()
	end
	Check.list("all pages", keys, { "1=10", "2=20", "3=30", "4=40", "5=50", "6=60", "7=70", "8=80" })
	Check.equal("the array stays", pages[3].key, "3")
	finish()
end)

task.spawn(function()
	for load = 1, 5 do
		local value, info = profiles:UpdateAsync(12, function(old, info)
			Check.equal("the info before", info and info.Version, load > 1 and string.format("%010d", load - 1) or nil)
			return (old or 0) + load, { 12 }, { load = load }
		end)
		Check.equal("the info after", info:GetMetadata().load, load)
		Check.equal("the user", info:GetUserIds()[1], 12)
		Check.equal("the value", value, load * (load + 1) / 2)
		task.wait(0.05)
	end
	finish()
end)

task.spawn(function()
	local seen = {}
	while #seen < 6 do
		local jobs, id = queue:ReadAsync(2, true, 5)
		for _, job in jobs do
			table.insert(seen, job.number)
		end
		queue:RemoveAsync(id)
	end
	Check.list("every job once", seen, { 1, 2, 3, 4, 5, 6 })
	Check.equal("none is left", #queue:ReadAsync(1, false, 0.2), 0)
	finish()
end)

task.spawn(function()
	for number = 1, 6 do
		queue:AddAsync({ number = number }, 20)
		sorted:SetAsync("player" .. number, { number }, number / 5, -number)
		sorted:UpdateAsync("sum", function(old, order)
			return (old or 0) + number, (order or 0) - 1
		end, 20)
		task.wait(0.1)
	end
	local keys = {}
	for _, entry in sorted:GetRangeAsync("Ascending", 10) do
		table.insert(keys, entry.key .. " " .. entry.sortKey)
	end
	Check.list("what has not expired", keys, { "player6 -6", "sum -6", "player5 -5", "player4 -4", "player3 -3" })
	Check.equal("every update counts", sorted:GetAsync("sum"), 21)
	finish()
end)
