-- get.lua: plain GET requests of the URL's path, as fast as wrk can: replies are not looked at.
dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "common.lua")
