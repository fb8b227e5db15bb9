-- N13: data stores: values, leaderboards, waiting for answers, errors.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local Stores = game:GetService("DataStoreService")

task.spawn(function()
	local store = Stores:GetDataStore("things")
	Check.equal("nothing is nil", store:GetAsync("missing"), nil)
	local start = tick()
	store:SetAsync("a", { list = { 1, 2 }, name = "x", on = true })
	Check.that("a call takes at least a tick", tick() - start >= 1 / 60 - 1e-9)
	local read = store:GetAsync("a")
	Check.equal("lists", read.list[2], 2)
	Check.equal("text", read.name, "x")
	Check.equal("booleans", read.on, true)
	read.name = "changed"
	Check.equal("a value read is a copy", store:GetAsync("a").name, "x")
	for _, value in { 5, 2.5, "text", true } do
		store:SetAsync("plain", value)
		Check.equal("plain values", store:GetAsync("plain"), value)
	end
	store:RemoveAsync("a")
	Check.equal("removed", store:GetAsync("a"), nil)
	local result = store:UpdateAsync("count", function(old)
		return (old or 0) + 1
	end)
	Check.equal("UpdateAsync returns the new value", result, 1)
	store:UpdateAsync("count", function(old)
		return old + 1
	end)
	Check.equal("and stores it", store:GetAsync("count"), 2)
	Check.equal("stores are apart", Stores:GetDataStore("others"):GetAsync("count"), nil)
	Check.fails("functions cannot be stored", "Failed to serialize value to JSON", function()
		store:SetAsync("f", { f = print })
	end)

	local ranking = Stores:GetOrderedDataStore("ranking")
	for name, score in { ada = 30, bo = 5, cy = 100, di = 30 } do
		ranking:SetAsync(name, { score = score, name = name })
	end
	local function keys(ascending, limit)
		local found = {}
		for _, entry in ranking:GetSortedAsync(ascending, limit) do
			table.insert(found, entry.key .. "=" .. entry.value.score)
		end
		return found
	end
	Check.list("descending, numeric, ties by key", keys(false, 10), { "cy=100", "ada=30", "di=30", "bo=5" })
	Check.list("ascending, limited", keys(true, 2), { "bo=5", "ada=30" })
	Check.fails("a score is needed", "OrderedDataStore value must have a 'score' field", function()
		ranking:SetAsync("x", { points = 1 })
	end)

	-- many at once
	local done = 0
	for index = 1, 10 do
		task.spawn(function()
			store:SetAsync("many" .. index, index)
			if store:GetAsync("many" .. index) == index then
				done += 1
			end
		end)
	end
	task.wait(0.5)
	Check.equal("ten threads at once", done, 10)
	Check.done()
end)
