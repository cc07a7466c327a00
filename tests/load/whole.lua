-- whole.lua: chats whose answers come in one piece. LOAD_*: see common.lua.
local common = dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "common.lua")

common.post(function()
    return common.chat(nil, common.question(), false)
end, function(body)
    if common.usage(body, "completion_tokens") ~= common.max_tokens then
        return "not max_tokens tokens"
    end
    if not body:find('"finish_reason"%s*:%s*"length"') then
        return "the finish reason is not length"
    end
end)
