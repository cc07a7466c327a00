-- prefix.lua: whole chats that share a system prompt of about 1,500 tokens and differ in the
-- question: what the prefix cache is for. LOAD_*: see common.lua.
local common = dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "common.lua")

local nouns = { "reply", "table", "source", "number", "name", "date", "unit", "list", "quote", "warning" }
local verbs = { "check", "state", "shorten", "repeat", "sort", "explain", "translate", "round" }
local rules = { "You are an assistant that follows rules." }
for i = 1, 80 do
    rules[#rules + 1] = string.format("Rule %d: always %s the %s before you %s the %s.", i,
        verbs[i % 8 + 1], nouns[i % 10 + 1], verbs[(i + 3) % 8 + 1], nouns[(i * 7 + 2) % 10 + 1])
end
local system = table.concat(rules, " ")

common.post(function()
    return common.chat(system, common.question(), false)
end, function(body)
    if common.usage(body, "completion_tokens") ~= common.max_tokens then
        return "not max_tokens tokens"
    end
    if (common.usage(body, "prompt_tokens") or 0) < 1000 then
        return "the prompt was not counted whole"
    end
end)
