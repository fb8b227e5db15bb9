-- What every world of the tests reports with: attributes of the folder `Report` in Workspace.

local Check = {}

local report = Instance.new("Folder")
report.Name = "Report"
report.Parent = Workspace
report:SetAttribute("Checks", 0)
report:SetAttribute("Failures", "")
report:SetAttribute("Done", false)

local function show(value)
	if type(value) == "string" then
		return string.format("%q", value)
	end
	return tostring(value)
end

function Check.that(what, ok, detail)
	report:SetAttribute("Checks", report:GetAttribute("Checks") + 1)
	if not ok then
		local line = what .. (detail and (": " .. detail) or "")
		report:SetAttribute("Failures", report:GetAttribute("Failures") .. line .. "\n")
		warn("FAILED " .. line)
	end
end

function Check.equal(what, actual, expected)
	Check.that(what, actual == expected, show(actual) .. " is not " .. show(expected))
end

function Check.near(what, actual, expected, tolerance)
	local difference = if type(actual) == "number" then math.abs(actual - expected) else (actual - expected).Magnitude
	Check.that(what, difference <= (tolerance or 1e-4), show(actual) .. " is not near " .. show(expected))
end

function Check.list(what, actual, expected)
	local shown, wanted = {}, {}
	for index, value in ipairs(actual) do
		shown[index] = tostring(value)
	end
	for index, value in ipairs(expected) do
		wanted[index] = tostring(value)
	end
	Check.equal(what, table.concat(shown, " "), table.concat(wanted, " "))
end

function Check.fails(what, text, action, ...)
	local ok, problem = pcall(action, ...)
	local found = not ok and string.find(tostring(problem), text, 1, true) ~= nil
	Check.that(what, found, if ok then "no error" else show(tostring(problem)) .. " lacks " .. show(text))
end

function Check.done()
	report:SetAttribute("Done", true)
end

return Check
