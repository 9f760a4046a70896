import { EmptyState, EmptyStateActions, EmptyStateBody, EmptyStateFooter } from "@patternfly/react-core";
import type { ComponentType, ReactElement, ReactNode } from "react";

/** What stands where nothing is yet: what would be here, and the next step. */
export function Teach(props: {
  title: string;
  children: ReactNode;
  icon?: ComponentType;
  actions?: ReactNode;
}): ReactElement {
  return (
    <EmptyState titleText={props.title} headingLevel="h2" icon={props.icon} variant="lg">
      <EmptyStateBody>{props.children}</EmptyStateBody>
      {props.actions && (
        <EmptyStateFooter>
          <EmptyStateActions>{props.actions}</EmptyStateActions>
        </EmptyStateFooter>
      )}
    </EmptyState>
  );
}
