"""A desktop inside a workspace: an X server, a window manager, and a driver that is its hands and eyes.

    with Workspace() as workspace:
        desktop = Desktop.start(workspace, (1024, 768))
        workspace.run("mousepad >/dev/null 2>&1 &")
        desktop.use("type", text="hello")
        picture = desktop.screenshot()        # uint8, shape (768, 1024, 3)

Everything belongs to the workspace: the processes, the sockets (no TCP, and nobody outside can connect), the picture.
So a fork of the workspace is a fork of the desktop; `Desktop(child)` is its handle.
"""

from __future__ import annotations

from bunshin_gym.desktop.display import ENVIRONMENT, Desktop
from bunshin_gym.desktop.screen import read_picture

__all__ = ["ENVIRONMENT", "Desktop", "read_picture"]
