task.wait()
return {}
